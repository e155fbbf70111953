"""What ships to users for their tests, and what our own tests use first. Nothing in the library imports it."""

from .attempt import attempt_of
from .clock import SkippingClock
from .event_log import EventLog
from .kit import SkippingEngine, skipping_engine, temporary_engine, wait_for_event

__all__ = ["EventLog", "SkippingClock", "SkippingEngine", "attempt_of", "skipping_engine", "temporary_engine", "wait_for_event"]
