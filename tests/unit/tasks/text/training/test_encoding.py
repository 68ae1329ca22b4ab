"""Texts as tokens: where they end, what of them is learned, and what becomes of long ones (B05)."""

from itertools import chain
from typing import Any

import pytest

from tests import tokenizers
from tests.language_models import SENTENCES, small_tokenizer
from tests.vision_models import tokenizer_of
from trainauto.core.errors import InputError
from trainauto.tasks.text.training.encoding import encode_samples
from trainauto.tasks.text.training.marks import marks_of
from trainauto.tasks.text.training.text_samples import Chat, Completion, Content, PlainText, TextPair, TextSample
from trainauto.tasks.text.training.tokenized_samples import NOT_LEARNED, TokenizedSamples
from trainauto.tasks.text.training.tokenizers import END_OF_TURN, SPECIAL_TOKENS, Vocabulary

CHAT = (
    ("system", "Be short."),
    ("user", "Name one."),
    ("assistant", "A name."),
    ("user", "More"),
    ("assistant", "No."),
)


def encoded(*contents: Content, tokenizer: Any = None, **settings: Any) -> TokenizedSamples:
    tokenizer = tokenizer or small_tokenizer()
    samples = [TextSample(f"a.txt:{line}", content) for line, content in enumerate(contents, start=1)]
    return encode_samples(samples, tokenizer, Vocabulary.of(tokenizer), **{"max_length": 400, **settings})


def learned_words(samples: TokenizedSamples) -> str:
    return str(small_tokenizer().decode(samples.learned.tolist()))


def test_a_plain_text_ends_and_all_but_its_first_token_is_learned() -> None:
    samples = encoded(*map(PlainText, SENTENCES))
    tokenizer = small_tokenizer()
    rows = [[*ids, tokenizer.eos_token_id] for ids in tokenizer(list(SENTENCES))["input_ids"]]
    assert samples.tokens.tolist() == list(chain.from_iterable(rows))
    assert samples.labels.tolist() == list(chain.from_iterable([NOT_LEARNED, *row[1:]] for row in rows))
    assert samples.lengths.tolist() == samples.label_lengths.tolist() == list(map(len, rows))
    assert samples.places == ["a.txt:1", "a.txt:2", "a.txt:3"]


def test_a_tokenizers_own_ending_is_not_doubled() -> None:
    tokenizer = tokenizers.fast_tokenizer(eos_token="[SEP]")
    samples = encoded(PlainText("the quick fox"), Completion("the quick", "fox"), tokenizer=tokenizer)
    start, end = tokenizer.cls_token_id, tokenizer.eos_token_id
    words = tokenizer("the quick fox", add_special_tokens=False)["input_ids"]
    assert samples.tokens.tolist() == [start, *words, end] * 2
    assert samples.labels.tolist()[5:] == [NOT_LEARNED] * 3 + [words[2], end]


def test_of_a_completion_the_prompt_is_not_learned() -> None:
    samples = encoded(Completion("What do names refer to?", " Objects."))
    assert learned_words(samples) == " Objects.<|endoftext|>"
    assert small_tokenizer().decode(samples.tokens.tolist()) == "What do names refer to? Objects.<|endoftext|>"


def test_special_tokens_among_words_are_said(caplog: pytest.LogCaptureFixture) -> None:
    chat = Chat((("user", "How do turns end?"), ("assistant", f"With {END_OF_TURN}, as in {END_OF_TURN}")))
    encoded(PlainText("one<|endoftext|>two"), Chat(CHAT), chat, PlainText("<|user|>"))
    said = [record.getMessage() for record in caplog.records]
    assert [words.partition(": the model")[0] for words in said] == [
        "dataset 'texts': 1 text holds a special token of the tokenizer among the words (<|end|>, first in a.txt:3)",
        "dataset 'texts': 1 text holds a special token of the tokenizer among the words (<|user|>, first in a.txt:4)",
    ]
    assert "<|im_end|>" in marks_of(tokenizer_of("qwen3_vl"))
    assert marks_of(small_tokenizer()) == set(SPECIAL_TOKENS)


def test_of_a_chat_the_assistants_words_are_learned() -> None:
    """The same as the template's own marks, which few templates have."""
    samples = encoded(Chat(CHAT))
    assert learned_words(samples) == f"A name.{END_OF_TURN}\nNo.{END_OF_TURN}\n"
    marked = small_tokenizer().chat_template.replace(
        "{{ message['content'] }}<|end|>\n",
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|end|>\n{% endgeneration %}"
        "{% else %}{{ message['content'] }}<|end|>\n{% endif %}",
    )
    theirs = small_tokenizer().apply_chat_template(
        [{"role": role, "content": words} for role, words in CHAT],
        chat_template=marked,
        return_assistant_tokens_mask=True,
        return_dict=True,
    )
    assert samples.tokens.tolist() == theirs["input_ids"]
    assert (samples.labels != NOT_LEARNED).tolist() == [bool(mark) for mark in theirs["assistant_masks"]]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "the tokenizer has no chat template"),
        ("{{ raise_exception('no systems') }}", "a.txt:1: the tokenizer's chat template refuses this chat: no systems"),
        ("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}", "changes earlier turns"),
    ],
)
def test_templates_that_do_not_serve_are_refused(template: str | None, message: str) -> None:
    tokenizer = tokenizers.bare_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(InputError, match=message):
        encoded(Chat(CHAT), tokenizer=tokenizer)


def test_chats_need_a_tokenizer_that_tells_places() -> None:
    with pytest.raises(InputError, match="chats need a fast tokenizer"):
        encoded(Chat(CHAT), tokenizer=tokenizers.byte_tokenizer())


def test_long_texts_are_cut_dropped_or_split(caplog: pytest.LogCaptureFixture) -> None:
    whole = encoded(PlainText(SENTENCES[0]))
    count = len(whole.tokens)
    settings = {"max_length": count // 2}
    with caplog.at_level("INFO"):
        cut = encoded(PlainText(SENTENCES[0]), PlainText("a b"), set_name="novels", **settings)
    assert cut.tokens[: count // 2].tolist() == whole.tokens[: count // 2].tolist()
    assert cut.lengths.max() == count // 2
    assert cut.counts.cut == 1
    assert f"of 2 texts 1 cut to {count // 2} tokens" in caplog.text
    dropped = encoded(PlainText(SENTENCES[0]), PlainText("a b"), too_long="drop", **settings)
    assert (len(dropped), dropped.counts.dropped) == (1, 1)
    split = encoded(PlainText(SENTENCES[0]), too_long="split", max_length=count - 1)
    assert split.tokens.tolist() == whole.tokens.tolist()[:-1]  # a last token alone has nothing before it
    split = encoded(PlainText(SENTENCES[0]), too_long="split", max_length=count // 3)
    assert split.tokens.tolist() == whole.tokens.tolist()[: len(split.tokens)]
    assert split.counts.split == 1
    assert count - len(split.tokens) < 2


def test_what_leaves_nothing_to_learn_is_left_out() -> None:
    samples = encoded(Completion(SENTENCES[1], "no"), PlainText("some words"), PlainText(""), max_length=20)
    assert len(samples) == 1
    assert (samples.counts.read, samples.counts.cut, samples.counts.empty) == (3, 1, 2)
    with pytest.raises(InputError, match="dataset 'novels': of 1 sample none is left"):
        encoded(PlainText(""), set_name="novels")


def test_pairs_are_cut_on_both_sides() -> None:
    end = small_tokenizer().eos_token_id
    whole = encoded(TextPair(SENTENCES[0], SENTENCES[1]), kind="encoder_decoder")
    assert whole.tokens[-1] == whole.labels[-1] == end
    assert NOT_LEARNED not in whole.labels
    pair = encoded(TextPair(SENTENCES[0], SENTENCES[1]), kind="encoder_decoder", max_length=9, max_target_length=5)
    assert pair.tokens.tolist() == [*whole.tokens[:8], end]  # what is read always ends
    assert pair.labels.tolist() == whole.labels[:5].tolist()  # what is written has not ended
    assert encoded(Completion("a", "b"), kind="encoder_decoder").label_lengths.tolist() == [2]


def test_a_plain_text_may_be_a_pair_of_its_halves() -> None:
    samples = encoded(PlainText("one two three four five"), PlainText("word"), kind="encoder_decoder", halves=True)
    decode, end = small_tokenizer().decode, "<|endoftext|>"
    assert decode(samples.tokens.tolist()) == f"one two three{end}"
    assert decode(samples.labels.tolist()) == f"four five{end}"
    assert (len(samples), samples.counts.empty) == (1, 1)


def test_samples_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match=r"dataset 'texts': a.txt:2 is a pair of source and target\n.*encoder_decoder"):
        encoded(PlainText("a b"), TextPair("a", "b"))
    for content, kind in ((PlainText("a"), "a plain text"), (Chat(CHAT), "a chat")):
        with pytest.raises(InputError, match=f"a.txt:1 is {kind}"):
            encoded(content, kind="encoder_decoder")
