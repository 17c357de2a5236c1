"""The group of an application whose stream threads are its members (KIP-1071): Kafka's streams group protocol.

A member sends heartbeats to a coordinator (a broker, or the embedded log), which answers with the member's tasks.
`member` is the member's side, `group` the coordinator's; neither sends anything by itself.
"""
