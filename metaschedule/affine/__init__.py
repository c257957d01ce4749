"""The access relation: which elements of a buffer which iterations touch. See README.md."""
