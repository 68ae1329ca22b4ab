"""Which network weights are of, told from their names and shapes."""

from trainauto.tasks.sr.recognition.recognise import recognise
from trainauto.tasks.sr.recognition.recognised import Recognised

__all__ = ["Recognised", "recognise"]
