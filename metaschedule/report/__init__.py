"""This package beside others: comparisons, their tables and charts, the peak of this machine."""
