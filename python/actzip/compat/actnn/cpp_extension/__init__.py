"""Those of ActNN's compiled functions that programs call. docs/migrating.md lists the others."""
