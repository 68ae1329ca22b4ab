// Functions that torch and NVML's callers find by name.
#pragma once

#define EXPORTED extern "C" __attribute__((visibility("default")))

constexpr int DRIVER_VERSION = 13000;
EXPORTED void simulated_card_note(const char* function);  // stubs call it; it speaks where settings().trace says so
