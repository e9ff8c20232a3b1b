// The layout is that of LMDB 0.9 on a little-endian 64-bit machine. All 0.9 releases share it, and none offers a
// function that checks a file.
#include "lmdb_pages.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <vector>

#include "error.hpp"
#include "file.hpp"
#include "little_endian.hpp"

namespace actzip::data::lmdb {
namespace {

using Page = std::vector<std::uint8_t>;

constexpr std::size_t kHeads = 2;  ///< pages 0 and 1; the one with the later transaction is valid
constexpr std::size_t kPageHead = 16;
constexpr std::size_t kNodeHead = 8;
constexpr std::size_t kPageNumber = 8;
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
constexpr std::size_t kLeastPage = 512;
constexpr std::size_t kMostPage = 32768;
constexpr int kMostDepth = 32;  ///< limit of LMDB's cursors

/// Flags of a page.
constexpr unsigned kBranch = 0x01;
constexpr unsigned kLeaf = 0x02;
constexpr unsigned kMeta = 0x08;
constexpr unsigned kKinds = 0x6f;            ///< flags for the kind of page; a writer uses the others
constexpr unsigned kOnPagesOfItsOwn = 0x01;  ///< flag of a node: its value is too large for the leaf

struct Head {
  std::size_t page_bytes = 0;
  std::uint64_t last_page = 0;
  std::uint64_t transaction = 0;
  std::array<std::uint64_t, 2> roots = {};   ///< of the tree of free pages and of the table's tree
  std::array<unsigned, 2> table_flags = {};  ///< likewise
};

class Checker {
 public:
  explicit Checker(const std::filesystem::path& path) : file_(path), head_(read_head(0, 0)) {
    const Head second = read_head(1, head_.page_bytes);
    if (second.page_bytes != head_.page_bytes) fail("its two heads have pages of different sizes");
    if (second.transaction > head_.transaction) head_ = second;
    page_count_ = file_.size() / head_.page_bytes;
    seen_.resize(page_count_);
  }

  std::uint64_t run() {
    constexpr unsigned kIntegerKeys = 0x08;  // set for LMDB's own table of free pages
    if ((head_.table_flags[0] & ~kIntegerKeys) != 0 || head_.table_flags[1] != 0)
      fail("its tables are of another kind");
    walk(head_.roots[0]);
    return walk(head_.roots[1]);
  }

 private:
  struct Step {
    std::uint64_t page;
    int depth;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{}: a damaged database: {}", file_.path().string(), what));
  }

  [[noreturn]] void fail(std::uint64_t page, const std::string& what) const {
    fail(fmt::format("page {}: {}", page, what));
  }

  [[noreturn]] void fail_as_cut(std::uint64_t page) const {
    throw DataError(fmt::format("{}: truncated: it has {} bytes, and page {} lies behind them", file_.path().string(),
                                file_.size(), page));
  }

  [[nodiscard]] Head read_head(std::uint64_t number, std::size_t page_bytes) const {
    constexpr std::uint32_t kMagic = 0xbeefc0de;
    constexpr std::uint32_t kVersion = 1;
    constexpr std::size_t kTables = kPageHead + 24;
    constexpr std::size_t kTable = 48;
    constexpr std::size_t kEnd = kTables + 2 * kTable;
    std::array<std::uint8_t, kEnd + 16> bytes;
    if (file_.read_some(number * page_bytes, bytes) < bytes.size()) fail_as_cut(number);
    const Bytes all(bytes);
    if ((little_endian<std::uint16_t>(all, 10) & kMeta) == 0 ||
        little_endian<std::uint32_t>(all, kPageHead) != kMagic ||
        little_endian<std::uint32_t>(all, kPageHead + 4) != kVersion) {
      throw DataError(fmt::format("{}: no LMDB, or of another version", file_.path().string()));
    }
    Head head;
    head.page_bytes = little_endian<std::uint32_t>(all, kTables);
    for (std::size_t i = 0; i < 2; ++i) {
      head.table_flags[i] = little_endian<std::uint16_t>(all, kTables + i * kTable + 4);
      head.roots[i] = little_endian<std::uint64_t>(all, kTables + i * kTable + 40);
    }
    head.last_page = little_endian<std::uint64_t>(all, kEnd);
    head.transaction = little_endian<std::uint64_t>(all, kEnd + 8);
    if (!std::has_single_bit(head.page_bytes) || head.page_bytes < kLeastPage || head.page_bytes > kMostPage) {
      fail(fmt::format("pages of {} bytes (allowed: a power of 2 from {} to {})", head.page_bytes, kLeastPage,
                       kMostPage));
    }
    return head;
  }

  /// Returns the number of entries below a page. Does not recurse, because the file determines the depth.
  std::uint64_t walk(std::uint64_t root) {
    std::uint64_t entries = 0;
    std::vector<Step> steps;
    if (root != kNoPage) steps.push_back({root, 1});
    while (!steps.empty()) {
      const Step step = steps.back();
      steps.pop_back();
      read_page(step);
      const unsigned kind = little_endian<std::uint16_t>(page_, 10) & kKinds;
      if (kind != kBranch && kind != kLeaf) fail(step.page, fmt::format("neither branch nor leaf, but {:#x}", kind));
      const std::size_t nodes = node_count(step.page, kind == kBranch ? 2 : 1);
      for (std::size_t i = 0; i < nodes; ++i) {
        const std::size_t node = node_at(step.page, i);
        if (kind == kBranch) {
          steps.push_back({child_of(node), step.depth + 1});
        } else {
          check_value(step.page, node);
          ++entries;
        }
      }
    }
    return entries;
  }

  void read_page(const Step& step) {
    check_pages_in_file(step.page, 1);
    if (step.depth > kMostDepth) fail(step.page, "deeper than LMDB can follow");
    if (seen_[step.page]) fail(step.page, "belongs to two others");
    seen_[step.page] = true;
    page_.resize(head_.page_bytes);
    file_.read(step.page * head_.page_bytes, page_);
    if (little_endian<std::uint64_t>(page_, 0) != step.page) fail(step.page, "says that it is another");
  }

  void check_pages_in_file(std::uint64_t first, std::uint64_t count) const {
    if (first < kHeads || first > head_.last_page || count > head_.last_page - first + 1) {
      fail(fmt::format("{} pages from {} on (allowed: {} to {})", count, first, kHeads, head_.last_page));
    }
    if (first >= page_count_ || count > page_count_ - first) fail_as_cut(first + count - 1);
  }

  [[nodiscard]] std::size_t node_count(std::uint64_t number, std::size_t least) const {
    const std::size_t lower = little_endian<std::uint16_t>(page_, 12);
    const std::size_t upper = little_endian<std::uint16_t>(page_, 14);
    if (lower < kPageHead || lower > upper || upper > page_.size() || lower % 2 != 0) {
      fail(number, fmt::format("free between {} and {} of {} bytes", lower, upper, page_.size()));
    }
    const std::size_t count = (lower - kPageHead) / 2;
    if (count < least) fail(number, fmt::format("{} entries", count));
    return count;
  }

  /// Returns the offset of an entry, after checking that its header and key lie within the page.
  [[nodiscard]] std::size_t node_at(std::uint64_t number, std::size_t index) const {
    const std::size_t node = little_endian<std::uint16_t>(page_, kPageHead + 2 * index);
    if (node < kPageHead || node > page_.size() - kNodeHead || key_bytes(node) > page_.size() - kNodeHead - node) {
      fail(number, fmt::format("entry {} lies outside", index));
    }
    return node;
  }

  [[nodiscard]] std::size_t key_bytes(std::size_t node) const { return little_endian<std::uint16_t>(page_, node + 6); }

  /// Combines the fields of a branch's node into the child's page number.
  [[nodiscard]] std::uint64_t child_of(std::size_t node) const {
    return little_endian<std::uint32_t>(page_, node) | std::uint64_t{little_endian<std::uint16_t>(page_, node + 4)}
                                                           << 32U;
  }

  void check_value(std::uint64_t number, std::size_t node) const {
    const std::size_t bytes = little_endian<std::uint32_t>(page_, node);
    const unsigned flags = little_endian<std::uint16_t>(page_, node + 4);
    const std::size_t value = node + kNodeHead + key_bytes(node);
    if ((flags & ~kOnPagesOfItsOwn) != 0) fail(number, fmt::format("an entry with flags {:#x}", flags));
    const bool is_apart = flags == kOnPagesOfItsOwn;
    if ((is_apart ? kPageNumber : bytes) > page_.size() - value) fail(number, "a value lies outside");
    if (!is_apart) return;
    check_pages_in_file(little_endian<std::uint64_t>(page_, value),
                        (kPageHead + bytes + head_.page_bytes - 1) / head_.page_bytes);
  }

  OpenFile file_;
  Head head_;
  std::uint64_t page_count_ = 0;  ///< whole pages in the file
  std::vector<bool> seen_;
  Page page_;
};

}  // namespace

std::uint64_t check_pages(const std::filesystem::path& file) { return Checker(file).run(); }

}  // namespace actzip::data::lmdb
