"""Theodolite: four use cases over the power that sensors measure, and their answers."""
