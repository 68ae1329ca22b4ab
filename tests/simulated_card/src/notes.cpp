// What speaks of functions that torch calls and this card does not have.
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "exported.h"
#include "settings.h"

void simulated_card_note(const char* function) {
    if (!settings().trace) return;
    static auto* const seen = new std::set<std::string>;
    static std::mutex lock;
    const std::lock_guard<std::mutex> held(lock);
    if (seen->insert(function).second) std::fprintf(stderr, "[simulated card] does nothing: %s\n", function);
}
