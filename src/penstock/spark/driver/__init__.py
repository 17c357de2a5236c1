"""The driver's side of a query: launch, planning of batches, progress, end."""

__all__: list[str] = []
