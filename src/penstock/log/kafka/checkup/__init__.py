"""What a cluster offers an application: questions that change nothing, and rules for the answers."""
