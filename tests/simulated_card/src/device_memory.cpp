#include "device_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "holders.h"

namespace {

constexpr Bytes SPACE = Bytes(1) << 40;  // of a card, in either direction

std::mutex lock_;
using Lock = std::lock_guard<std::mutex>;
using Address = std::uint64_t;

struct Range {
    Bytes size;
    int card;
};

void* addresses(Bytes size) {
    void* found = mmap(nullptr, size + GRANULE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return nullptr;
    const Address first = reinterpret_cast<Address>(found);
    return reinterpret_cast<void*>((first + GRANULE - 1) / GRANULE * GRANULE);
}

// Where the driver places what cudaMalloc asks for: an address that was given back, the lowest first; else new ones,
// upwards, and downwards for large sizes (as in 142 recorded histories; the rule itself is not
// published).
class Placement {
public:
    Address place(Bytes size) {
        for (auto& [begin, room] : holes_)
            if (room >= size) {
                const Address found = begin;
                const Bytes rest = room - size;
                holes_.erase(found);
                if (rest) holes_[found + size] = rest;
                return found;
            }
        if (!up_) {
            void* const base = addresses(2 * SPACE);
            if (!base) std::abort();
            up_ = reinterpret_cast<Address>(base);
            down_ = up_ + 2 * SPACE - GRANULE;
        }
        if (size >= settings().descends_from) return down_ -= size;
        up_ += size;
        return up_ - size;
    }

    void give_back(Address begin, Bytes size) {
        auto next = holes_.lower_bound(begin);
        if (next != holes_.end() && next->first == begin + size) {
            size += next->second;
            next = holes_.erase(next);
        }
        if (next != holes_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == begin) {
                before->second += size;
                return;
            }
        }
        holes_[begin] = size;
    }

private:
    Address up_ = 0, down_ = 0;
    std::map<Address, Bytes> holes_;
};

struct State {
    Placement placements[MOST_CARDS];
    std::map<Address, Range> allocated, reserved;  // by their first address
};

State& state() {
    static State* const once = new State;  // never destroyed: torch frees memory while the process ends
    return *once;
}

int card_in(const std::map<Address, Range>& ranges, Address address) {
    auto at = ranges.upper_bound(address);
    if (at == ranges.begin()) return -1;
    --at;
    return address < at->first + at->second.size ? at->second.card : -1;
}

}  // namespace

void drop_pages(void* begin, Bytes size) { madvise(begin, size, MADV_DONTNEED); }

void* allocate(int card, Bytes size) {
    const Lock held(lock_);
    size = (size + GRANULE - 1) / GRANULE * GRANULE;
    if (!take(card, size)) return nullptr;
    const Address address = state().placements[card].place(size);
    state().allocated[address] = {size, card};
    return reinterpret_cast<void*>(address);
}

bool release(void* pointer) {
    const Lock held(lock_);
    const auto found = state().allocated.find(reinterpret_cast<Address>(pointer));
    if (found == state().allocated.end()) return false;
    const auto [address, range] = *found;
    state().allocated.erase(found);
    give_back(range.card, range.size);
    drop_pages(pointer, range.size);
    state().placements[range.card].give_back(address, range.size);
    return true;
}

int card_of(const void* pointer) {
    const Lock held(lock_);
    const Address address = reinterpret_cast<Address>(pointer);
    const int card = card_in(state().allocated, address);
    return card >= 0 ? card : card_in(state().reserved, address);
}

void* reserve_addresses(Bytes size) {
    void* const begin = addresses(size);
    if (!begin) return nullptr;
    const Lock held(lock_);
    state().reserved[reinterpret_cast<Address>(begin)] = {size, 0};
    return begin;
}

void drop_addresses(void* begin, Bytes size) {
    const Lock held(lock_);
    state().reserved.erase(reinterpret_cast<Address>(begin));
    munmap(begin, size);
}

void map_addresses(void* begin, Bytes, int card) {
    const Lock held(lock_);
    auto at = state().reserved.upper_bound(reinterpret_cast<Address>(begin));
    if (at != state().reserved.begin()) std::prev(at)->second.card = card;  // a segment lies on one card
}
