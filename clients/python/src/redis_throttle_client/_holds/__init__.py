"""Leases, reservations and admissions, until their end. Imports the rooms below it."""
