"""What travels on the topics of Spillway: message types, their JSON, their keys and versions."""
