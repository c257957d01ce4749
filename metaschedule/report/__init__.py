"""What people see: plots and figures of the machine."""
