"""Subjects: the models under investigation."""
