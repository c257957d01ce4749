"""Who else runs the workloads: PyTorch and TVM."""
