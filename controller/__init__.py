"""All decisions: when, how much and what to shed; pure functions of what was measured."""
