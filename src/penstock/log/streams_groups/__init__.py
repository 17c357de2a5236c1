"""Groups of applications whose stream threads are the members: Kafka's streams group protocol (KIP-1071)."""
