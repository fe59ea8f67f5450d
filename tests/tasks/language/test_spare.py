"""The token that no text of a task has."""

from dataclasses import replace

import pytest

from assay.core.errors import AssayError
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition
from assay.tasks.language.spare import spare_token


def test_a_vocabulary_of_used_characters_alone_has_no_spare_token() -> None:
    with pytest.raises(AssayError, match="task 'addition-1': every token of the vocabulary is text"):
        spare_token(replace(addition(1), tokenizer=CharacterTokenizer("0123456789+=")))
    one_more = CharacterTokenizer("0123456789x+=")
    assert spare_token(replace(addition(1), tokenizer=one_more)) == one_more.ids["x"]


def test_a_task_without_prompts_has_none() -> None:
    assert spare_token(cartpole()) == -1
