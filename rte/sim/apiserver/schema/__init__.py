"""What objects look like: Go structs and structural schemas, decoding, patches."""
