"""Testbeds: small tasks in which an effect must show, each with a known optimum and settings that turn it up."""
