"""Runners: processes that take jobs from a server and evaluate them, one at a time, on a device of their own."""
