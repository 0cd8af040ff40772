// A model of TensorFlow's allocator of GPU memory. It takes the best fit among the free blocks, and
// splits a block only if the rest is at least as large as the request, or very large.

#ifndef TF_PLACER_NATIVE_ALLOCATOR_H_
#define TF_PLACER_NATIVE_ALLOCATOR_H_

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace tf_placer {

// An allocator of unlimited memory, with the rules and constants of `BFCAllocator` in TensorFlow's
// bfc_allocator.cc.
class Allocator {
 public:
  // Forgets all blocks.
  void clear() {
    blocks_.clear();
    unused_.clear();
    free_.clear();
    last_ = -1;
  }

  // Allocates a block of at least this size, and returns its number.
  int32_t allocate(int64_t bytes) {
    const int64_t size = (bytes + kUnit - 1) / kUnit * kUnit;
    const auto found = free_.lower_bound({size, 0, 0});
    int32_t block;
    if (found != free_.end()) {
      block = std::get<2>(*found);
      free_.erase(found);
      const int64_t rest = blocks_[block].size - size;
      if (rest >= size || rest >= kMostWaste) cut(block, size);
    } else if (last_ >= 0 && blocks_[last_].is_free) {
      // Extend the last block, because it is free and more memory follows it.
      block = last_;
      free_.erase({blocks_[block].size, blocks_[block].address, block});
      blocks_[block].size = size;
    } else {
      const int64_t end = last_ < 0 ? 0 : blocks_[last_].address + blocks_[last_].size;
      block = add({end, size, last_, -1, false});
    }
    blocks_[block].is_free = false;
    return block;
  }

  // Frees a block, and joins it with its free neighbors.
  void free(int32_t block) {
    const int32_t after = blocks_[block].after;
    if (after >= 0 && blocks_[after].is_free) join(block, after);
    const int32_t before = blocks_[block].before;
    if (before >= 0 && blocks_[before].is_free) {
      free_.erase({blocks_[before].size, blocks_[before].address, before});
      join_used(before, block);
      block = before;
    }
    blocks_[block].is_free = true;
    free_.insert({blocks_[block].size, blocks_[block].address, block});
  }

  // Returns the memory of all blocks, including free ones.
  int64_t end() const {
    return last_ < 0 ? 0 : blocks_[last_].address + blocks_[last_].size;
  }

 private:
  static constexpr int64_t kUnit = 256;
  static constexpr int64_t kMostWaste = int64_t{128} << 20;

  struct Block {
    int64_t address;
    int64_t size;
    int32_t before;  // the blocks beside it, or -1
    int32_t after;
    bool is_free;
  };

  int32_t add(const Block& block) {
    int32_t number = static_cast<int32_t>(blocks_.size());
    if (unused_.empty()) {
      blocks_.push_back(block);
    } else {
      number = unused_.back();
      unused_.pop_back();
      blocks_[number] = block;
    }
    if (block.before >= 0) blocks_[block.before].after = number;
    if (block.after >= 0) {
      blocks_[block.after].before = number;
    } else {
      last_ = number;
    }
    return number;
  }

  void cut(int32_t block, int64_t size) {
    const Block whole = blocks_[block];
    blocks_[block].size = size;
    const int32_t rest = add({whole.address + size, whole.size - size, block, whole.after, true});
    free_.insert({blocks_[rest].size, blocks_[rest].address, rest});
  }

  // Joins a block with the free one behind it.
  void join(int32_t block, int32_t after) {
    free_.erase({blocks_[after].size, blocks_[after].address, after});
    join_used(block, after);
  }

  void join_used(int32_t block, int32_t after) {
    blocks_[block].size += blocks_[after].size;
    blocks_[block].after = blocks_[after].after;
    if (blocks_[block].after >= 0) {
      blocks_[blocks_[block].after].before = block;
    } else {
      last_ = block;
    }
    unused_.push_back(after);
  }

  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;  // numbers of blocks that no longer exist
  std::set<std::tuple<int64_t, int64_t, int32_t>> free_;  // (size, address, number)
  int32_t last_ = -1;  // the block with the highest address
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_ALLOCATOR_H_
