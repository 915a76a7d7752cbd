"""Rules, options, decisions, errors: values. Imports no other room."""
