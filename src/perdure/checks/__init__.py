"""Output checks for stages: from what a model wrote to a value of the form that was asked for.

>>> from perdure.checks import check, json_of
>>> json_of('Here you are: {"total": 3,}')
{'total': 3}
>>> check('{"total": 3}', dict[str, int])
{'total': 3}

What does not fit raises `OutputInvalid`, `OutputTruncated` or `OutputRefused`, which a stage lets
escape: the attempt then knows its kind, the place and the rule.
"""

from perdure.checks.output import Parsed, check, fits, json_of, read_json
from perdure.model.errors import OutputError, OutputInvalid, OutputRefused, OutputTruncated

__all__ = [
    "OutputError",
    "OutputInvalid",
    "OutputRefused",
    "OutputTruncated",
    "Parsed",
    "check",
    "fits",
    "json_of",
    "read_json",
]
