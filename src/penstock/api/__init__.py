"""What users build topologies with."""
