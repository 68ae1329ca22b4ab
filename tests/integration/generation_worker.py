"""Has a model answer all conversations of a file at once, under a real memory budget: ``worker MODEL CHATS BUDGET``."""

import json
import logging
import sys

import torch

from trainauto.core.process import parse_size_bytes, set_environment


def main(model_folder: str, chats: str, budget: str) -> None:
    """Print what was answered without a budget and with it, and what was said of memory, as JSON."""
    set_environment()
    torch.set_num_threads(1)
    from trainauto.memory.monitor.meter import MemoryMeter
    from trainauto.memory.monitor.release import release_memory
    from trainauto.tasks.finetune.answers import answer_all
    from trainauto.tasks.finetune.conversation_files import read_conversations
    from trainauto.tasks.finetune.encoding import ConversationEncoder
    from trainauto.tasks.finetune.models import ModelSettings, load_model
    from trainauto.tasks.finetune.processors import load_processor

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trainauto").addHandler(handler)
    model, encoder = load_model(ModelSettings(model_folder)), ConversationEncoder(load_processor(model_folder))
    conversations = read_conversations(chats, set_name="test", prompt="")
    example = encoder.encode(next(each for each in conversations if each.images))

    def answers() -> list[str]:
        everything = len(conversations) * 2
        given = answer_all(model, encoder, conversations, padding_id=0, batch_size=everything, example=example)
        return [answer.given for answer in given]

    roomy = answers()
    release_memory(torch.device("cpu"))  # what was answered there would be answered there again
    MemoryMeter(torch.device("cpu")).set_budget(parse_size_bytes(budget))
    print(json.dumps({"roomy": roomy, "tight": answers(), "said": said}))


if __name__ == "__main__":
    main(*sys.argv[1:])
