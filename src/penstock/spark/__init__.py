"""The only package that imports PySpark."""
