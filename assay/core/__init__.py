"""The record, spaces, slots, recipes and settings that every other package builds on."""
