"""The promises of `outlast.decisions.store.DecisionStore`, written once. An adapter gives a fixture `backend` on an empty database with its schema."""

from .answers import AnswersSuite
from .lists import ListsSuite
from .states import StatesSuite


class DecisionSuite(StatesSuite, AnswersSuite, ListsSuite):
    """Subclass it in a test module, beside a fixture `backend`."""


__all__ = ["DecisionSuite"]
