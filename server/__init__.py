"""The service: HTTP API, tables, reconcile loop."""
