"""What both engines need of an application before it runs: its plan, internal topics, lease, mode and folders."""

__all__: list[str] = []
