"""Data that passes between the driver and the workers: the job, bins, envelopes, rows between stages, errors."""

__all__: list[str] = []
