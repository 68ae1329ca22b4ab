// The card that this thread's calls are for, and what is known of it.
#pragma once

#include "settings.h"

int current_card();
int card_attribute(int which);  // by the numbers that cudaDeviceAttr and CUdevice_attribute share
struct CardId {
    unsigned char bytes[16];
};
CardId card_id(int card);
