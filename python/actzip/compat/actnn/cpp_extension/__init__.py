"""The functions that ActNN has compiled, as far as programs call them; docs/migrating.md names the others."""
