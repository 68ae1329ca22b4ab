// Addresses of the cards. They are address space of this process: what is never written has no pages.
#pragma once

#include "settings.h"

void* allocate(int card, Bytes size);  // null where the card has too little
bool release(void* address);           // false where nothing begins there
int card_of(const void* address);      // -1 where it belongs to no card
void* reserve_addresses(Bytes size);   // of virtual memory, with nothing behind them; null on failure
void drop_addresses(void* begin, Bytes size);
void map_addresses(void* begin, Bytes size, int card);
void drop_pages(void* begin, Bytes size);  // reads as zeros from here on
