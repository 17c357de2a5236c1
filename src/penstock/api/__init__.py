"""The DSL and the Processor API: the classes that topologies are built with."""
