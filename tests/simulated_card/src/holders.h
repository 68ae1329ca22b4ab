// Who holds how much of the cards' memory. Processes share the figures; a process that is gone holds nothing.
#pragma once

#include "settings.h"

struct Holder {  // one row of the table, which neighbour.py writes as well
    std::int32_t pid;  // 0 where the row is free
    std::int32_t unused;
    Bytes held[MOST_CARDS];
};
constexpr int MOST_HOLDERS = 256;

bool is_alive(const Holder&);
const Holder* holders();

void open_context(int card);       // takes the context's memory, once a process and card
bool has_context(int card);
bool take(int card, Bytes);        // false where so much is not free
void give_back(int card, Bytes);
Bytes used_bytes(int card);        // by everybody
