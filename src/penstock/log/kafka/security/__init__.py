"""SASL, TLS and tokens, and what a refusal by an ACL means."""
