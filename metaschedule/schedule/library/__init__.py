"""What can be composed: functions over primitives, whose trace is a trace of primitives."""
