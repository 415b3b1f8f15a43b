"""The API server: credentials, transport, watches, patches, Lease."""
