#include "actzip/budget.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "session_fixture.hpp"

namespace actzip {
namespace {

constexpr double kLost = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBudgetElems = 4096;
constexpr std::size_t kPlainBytes = kBudgetElems * sizeof(float);

template <class Body>
void expect_says(ErrorCode code, const std::string& part, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code));
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

std::size_t rotated_bytes(int bits) { return encoded_bytes(Rotated{.bits = Bits(bits)}, DType::f32, kBudgetElems); }

TEST(Budget, is_read_as_bytes_a_share_or_what_is_left) {
  const auto bytes = [](const char* text) { return std::get<HeldBytes>(*parse_budget(text)).value; };
  const auto share = [](const char* text) { return std::get<HeldShare>(*parse_budget(text)).value; };
  EXPECT_EQ(bytes("4GiB"), std::size_t{4} << 30U);
  EXPECT_EQ(bytes("1.5 MiB"), 1572864U);
  EXPECT_EQ(bytes("500mb"), 500'000'000U);
  EXPECT_EQ(bytes("65536"), 65536U);
  EXPECT_EQ(bytes("2B"), 2U);
  EXPECT_EQ(share("0.25"), 0.25);
  EXPECT_EQ(share("25%"), 0.25);
  EXPECT_EQ(share("1"), 1.0);
  EXPECT_TRUE(std::holds_alternative<WhatIsLeft>(*parse_budget("auto")));
  EXPECT_FALSE(parse_budget(""));
  for (const char* text : {"0", "-1GiB", "4 gibberish", "GiB", "150%", "nan", "inf", "1e300", "0.2B", "4GiB more"}) {
    expect_says(ErrorCode::invalid_spec, "allowed: bytes above 0", [&] { parse_budget(text); });
  }
}

TEST(Budget, refuses_what_contradicts_it) {
  const auto refuse = [](const SessionOptions& options, const char* text) {
    expect_says(ErrorCode::invalid_spec, text, [&] { const Session session(options); });
  };
  refuse({.preset = "exact", .budget = "1MiB"}, "preset 'exact'");
  refuse({.preset = "actnn:L3", .budget = "1MiB"}, "preset 'actnn:L3'");
  refuse({.bits = 2, .budget = "1MiB"}, "bits 2");
  refuse({.dry = true, .budget = "1MiB"}, "dry");
  refuse({.only = "a", .budget = "1MiB"}, "only");
  refuse({.adapt = "sample", .budget = "1MiB"}, "adapt 'sample'");
}

/// Four linear operands, the last of which is small, and what they keep until backward.
class BudgetTest : public test::SessionTest {
 protected:
  void step(std::int64_t elems = kBudgetElems) {
    kept_.clear();
    session->begin_step();
    for (const char* module : {"a", "b", "c"}) keep_at(module, elems);
    keep_at("small", 100);
  }
  void learn(double a, double b, double c) { session->learn({.sites = {{id("a"), a}, {id("b"), b}, {id("c"), c}}}); }
  void backward() {
    for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
      if (kept->how == Keep::encoded) restore(*kept, Stream(), memory);
    }
    kept_.clear();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      step();
      backward();
    }
  }
  SiteId id(const char* module) { return session->site(test::site_key(module, "mm", "self")); }
  [[nodiscard]] std::size_t most_held() const { return session->report().budget->most_held; }

  std::vector<Kept> kept_;

 private:
  void keep_at(const char* module, std::int64_t elems) {
    const test::FakeTensor tensor(elems);
    kept_.push_back(session->keep(id(module), tensor.saved(), Stream(), memory));
  }
};

using Codecs = std::vector<std::string>;

TEST_F(BudgetTest, learns_sizes_with_the_fewest_bits_then_spends_what_there_is) {
  const std::size_t budget = 4 * rotated_bytes(3);
  restart({.budget = std::to_string(budget)});
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:1", "rotated:1", "rotated:1", "as is"}));
  EXPECT_EQ(session->report().sites[0].reason, "the fewest bits, until there is a plan");
  backward();
  step();
  EXPECT_EQ(codecs()[0], "rotated:1") << "sharing has been learned, sizes are learned now";
  backward();
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:4", "rotated:4", "rotated:3", "as is"}));
  EXPECT_LE(most_held(), budget);
  EXPECT_EQ(most_held(), *session->report().plan->predicted_bytes) << "tensors that are kept exactly are counted";
}

TEST_F(BudgetTest, bits_go_where_they_matter_up_to_keeping_a_tensor_as_it_is) {
  restart({.budget = std::to_string(kPlainBytes + 3 * rotated_bytes(2))});
  steps(2);
  learn(1e6, 1.0, 1.0);
  step();
  EXPECT_EQ(codecs(), (Codecs{"as is", "rotated:2", "rotated:2", "as is"}));
  EXPECT_LE(most_held(), session->report().budget->bytes);
  backward();
  learn(1.0, 1e9, 1.0);
  step();
  EXPECT_EQ(codecs()[1], "as is");
  backward();
}

TEST_F(BudgetTest, a_share_is_of_what_would_be_held_without) {
  restart({.budget = "0.5"});
  steps(3);
  const Report report = session->report();
  EXPECT_EQ(*report.budget->bytes, (3 * kPlainBytes + 400) / 2);
  EXPECT_LE(report.budget->most_held, *report.budget->bytes);
  EXPECT_GT(report.budget->most_held, *report.budget->bytes / 2);
}

TEST_F(BudgetTest, a_share_is_of_the_largest_step_so_far) {
  restart({.budget = "0.1"});
  steps(4);
  const std::size_t limit = *session->report().budget->bytes;
  step(kBudgetElems / 4);  // an epoch ends with a small batch
  backward();
  step();
  backward();
  EXPECT_EQ(*session->report().budget->bytes, limit);
  EXPECT_LE(most_held(), limit);
}

TEST_F(BudgetTest, a_share_grows_with_the_step) {
  restart({.budget = "0.1"});
  steps(4);
  for (const int times : {2, 16}) {
    step(times * kBudgetElems);
    backward();
    EXPECT_LE(most_held(), *session->report().budget->bytes);
    EXPECT_LE(*session->report().budget->bytes, (times * 3 * kPlainBytes + 400) / 10);
  }
}

TEST_F(BudgetTest, a_step_that_grows_gets_fewer_bits_and_stays_within) {
  const std::size_t budget = 3 * rotated_bytes(4) + 1000;
  restart({.budget = std::to_string(budget)});
  steps(3);
  step(2 * kBudgetElems);
  EXPECT_LE(most_held(), budget);
  EXPECT_EQ(codecs().back(), "as is");
  EXPECT_NE(session->report().sites[2].reason, "as planned");
  backward();
  step(2 * kBudgetElems);
  EXPECT_EQ(session->report().sites[0].reason, "as planned") << "the next step is planned for its size";
  EXPECT_LE(most_held(), budget);
  backward();
}

TEST_F(BudgetTest, what_cannot_be_kept_is_said_before_anything_is_wrong) {
  restart({.budget = std::to_string(2 * rotated_bytes(1))});
  step();
  EXPECT_LE(most_held(), 2 * rotated_bytes(1));
  expect_says(ErrorCode::budget_too_small, "this step would hold", [&] { backward(); });
  expect_says(ErrorCode::budget_too_small, "'a: mm.self'", [&] { backward(); });
  step(kBudgetElems / 4);
  backward();  // a smaller step fits
}

TEST_F(BudgetTest, a_step_that_is_too_large_spoils_no_later_one) {
  restart({.budget = std::to_string(3 * rotated_bytes(2) + 1000)});
  steps(4);
  step(16 * kBudgetElems);
  EXPECT_LE(most_held(), *session->report().budget->bytes);
  expect_says(ErrorCode::budget_too_small, "cannot be kept", [&] { backward(); });
  steps(3);
  EXPECT_EQ(session->report().sites[0].reason, "as planned");
  EXPECT_LE(most_held(), *session->report().budget->bytes);
}

TEST_F(BudgetTest, what_fits_in_its_fewest_bits_alone_goes_on_so) {
  restart({.budget = std::to_string(3 * rotated_bytes(1) + 400)});
  steps(5);
  EXPECT_EQ(codecs(), (Codecs{"rotated:1", "rotated:1", "rotated:1", "as is"}));
}

TEST_F(BudgetTest, more_bits_than_there_are_is_said) {
  restart({.budget = std::to_string(3 * rotated_bytes(1) + 420)});
  steps(3);
  EXPECT_EQ(session->note_look(id("a"), kLost), Remedy::more_bits);
  expect_says(ErrorCode::budget_too_small, "cannot be kept", [&] { step(); });
}

TEST_F(BudgetTest, a_share_that_cannot_be_kept_is_said_in_the_first_step) {
  restart({.budget = "0.01"});
  step();
  expect_says(ErrorCode::budget_too_small, "cannot be kept", [&] { backward(); });
}

TEST_F(BudgetTest, two_steps_that_wait_together_share_it) {
  const std::size_t budget = 8 * rotated_bytes(2);
  restart({.budget = std::to_string(budget)});
  std::vector<Kept> before;
  for (int i = 0; i < 6; ++i) {
    step();
    before.swap(kept_);  // the backward of a step runs after the forward of the next
    if (i > 0) backward();
    EXPECT_LE(most_held(), budget);
  }
}

TEST_F(BudgetTest, threads_share_it) {
  const std::size_t budget = 12 * rotated_bytes(2);
  restart({.budget = std::to_string(budget)});
  std::atomic<int> wrong{0};
  test::PlainMemory plain;
  const auto train = [&](const char* module) {
    const test::FakeTensor tensor(kBudgetElems);
    for (int i = 0; i < 200; ++i) {
      session->begin_step();
      std::vector<Kept> kept;
      kept.push_back(session->keep(id(module), tensor.saved(), Stream(), plain));
      kept.push_back(session->keep(id("shared"), tensor.saved(), Stream(), plain));
      if (session->report().budget->most_held > budget) ++wrong;
      try {
        for (const Kept& one : kept) {
          if (one.how == Keep::encoded) restore(one, Stream(), plain);
        }
      } catch (const Error& error) {
        if (error.code() != ErrorCode::budget_too_small) ++wrong;
      }
    }
  };
  std::vector<std::thread> threads;
  for (const char* module : {"a", "b", "c", "d"}) threads.emplace_back(train, module);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(session->live_bytes(), 0U);
}

TEST_F(BudgetTest, room_that_nobody_uses_is_there_for_the_next) {
  restart({.budget = std::to_string(rotated_bytes(1))});
  session->begin_step();
  const test::FakeTensor tensor(kBudgetElems);
  const test::FakeTensor other(kBudgetElems, 1.0F);
  {
    const Reservation reserved = session->reserve(id("a"), tensor.saved(), Stream(), memory);
    EXPECT_TRUE(reserved.wants_bytes());
    EXPECT_EQ(most_held(), rotated_bytes(1));
  }
  kept_.push_back(session->keep(id("b"), other.saved(), Stream(), memory));
  EXPECT_EQ(session->report().sites.size(), 1U);
  EXPECT_EQ(most_held(), rotated_bytes(1));
  backward();
}

TEST_F(BudgetTest, a_site_that_few_bits_spoil_gets_more) {
  restart({.budget = std::to_string(3 * rotated_bytes(2) + 1000)});
  EXPECT_FALSE(session->is_settled(id("a")));
  steps(3);
  EXPECT_TRUE(session->is_settled(id("a")));
  EXPECT_EQ(session->note_look(id("a"), kLost), Remedy::more_bits);
  EXPECT_FALSE(session->was_looked_at(id("a")));
  steps(1);
  step();
  EXPECT_GE(codecs()[0], "rotated:3");
  EXPECT_EQ(codecs()[2].substr(0, 8), "rotated:");
  EXPECT_LE(most_held(), *session->report().budget->bytes);
  backward();
}

TEST_F(BudgetTest, attention_that_cannot_run_again_never_gets_few_bits) {
  restart({.budget = std::to_string(4 * rotated_bytes(4) + 1000)});
  const auto attend = [&] {
    session->begin_step();
    for (const char* slot : {"query", "value", "result"}) {
      const test::FakeTensor tensor(kBudgetElems);
      SavedTensor saved = tensor.saved();
      saved.facts.keeps_sums = true;
      kept_.push_back(keep("attention", slot, saved));
    }
    const test::FakeTensor other(kBudgetElems);
    kept_.push_back(keep("mm", "self", other.saved()));
  };
  attend();
  EXPECT_EQ(codecs(), (Codecs{"rotated:4", "rotated:4", "rotated:4", "rotated:1"})) << "until there is a plan";
  backward();
  attend();
  backward();
  session->learn({.sites = {{session->site_named("attention.query"), 1e-6},
                            {session->site_named("attention.value"), 1e-6},
                            {session->site_named("attention.result"), 1e-6},
                            {session->site_named("mm.self"), 1.0}}});
  attend();
  EXPECT_EQ(session->report().sites[3].reason, "as planned");
  EXPECT_EQ(codecs(), (Codecs{"rotated:4", "rotated:4", "rotated:4", "rotated:4"}));
  backward();
}

TEST_F(BudgetTest, a_reservation_that_nobody_keeps_fails_no_step) {
  restart({.budget = std::to_string(rotated_bytes(1))});
  session->begin_step();
  const test::FakeTensor tensor(kBudgetElems);
  const test::FakeTensor other(kBudgetElems, 1.0F);
  SavedTensor parameter = other.saved();
  parameter.role = Role::parameter;
  parameter.bytes = kPlainBytes;
  kept_.push_back(session->keep(id("a"), tensor.saved(), Stream(), memory));
  (void)session->reserve(id("b"), other.saved(), Stream(), memory);
  (void)session->reserve(id("c"), parameter, Stream(), memory);
  restore(kept_.front(), Stream(), memory);
  kept_.push_back(session->keep(session->reserve(id("b"), other.saved(), Stream(), memory), Written::nothing));
  expect_says(ErrorCode::budget_too_small, "this step would hold", [&] { backward(); });
}

TEST_F(BudgetTest, an_adapter_keeps_something_beside_only_if_there_is_room) {
  restart({.budget = std::to_string(3 * rotated_bytes(2) + 1000)});
  steps(2);
  step();
  EXPECT_EQ(session->hold_beside(id("c"), kPlainBytes), nullptr);
  auto room = session->hold_beside(id("small"), 50);
  EXPECT_NE(room, nullptr);
  const std::size_t with = most_held();
  kept_.clear();
  room.reset();
  step();
  EXPECT_EQ(most_held(), with - 50);
  restart({});
  EXPECT_NE(session->hold_beside(id("a"), std::size_t{1} << 40U), nullptr) << "without a budget";
}

TEST_F(BudgetTest, what_is_left_is_asked_for_when_gradients_exist) {
  class Left : public test::FakeMemory {
   public:
    [[nodiscard]] std::size_t available_bytes(const Stream& /*stream*/) const override { return 100'000; }
  } left;
  restart({.budget = "auto"});
  const test::FakeTensor tensor(kBudgetElems);
  for (int i = 0; i < 4; ++i) {
    session->begin_step();
    const Kept kept = session->keep(id("a"), tensor.saved(), Stream(), left);
    EXPECT_EQ(session->report().budget->bytes.has_value(), i >= 2);
  }
  EXPECT_EQ(*session->report().budget->bytes, 75'000U);
  EXPECT_EQ(codecs()[0], "as is") << "there is enough";
}

TEST_F(BudgetTest, a_resumed_session_has_its_plan_from_the_first_step_on) {
  restart({.budget = "0.2"});
  steps(4);
  learn(100.0, 1.0, 1.0);
  steps(1);
  const std::string state = session->save_state();
  step();
  const Codecs planned = codecs();
  backward();
  const std::string next = session->save_state();
  restart({.budget = "0.2"});
  session->load_state(state);
  EXPECT_EQ(session->save_state(), state);
  step();
  EXPECT_EQ(codecs(), planned);
  backward();
  EXPECT_EQ(session->save_state(), next);
}

}  // namespace
}  // namespace actzip
