"""The version of the package, read by the build and by `penstock version`."""

__all__ = ["__version__"]

__version__ = "0.1.0"
