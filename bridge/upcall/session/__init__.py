"""The side of a program that asks: its endpoint, its record, and clients of any endpoint."""
