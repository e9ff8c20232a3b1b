#include <limits>
#include <string>

#include "session_fixture.hpp"

namespace actzip {
namespace {

using test::FakeTensor;
using Codecs = std::vector<std::string>;

constexpr double kLost = std::numeric_limits<double>::infinity();

class GuardTest : public test::SessionTest {
 protected:
  /// A step that saves the input of a convolution and of a GELU, and a large tensor that is kept as it is.
  void step() {
    kept_.clear();
    session->begin_step();
    kept_.push_back(keep("convolution", "input", products_.saved()));
    kept_.push_back(keep("gelu", "self", slopes_.saved()));
    kept_.push_back(keep("amax", "self", rest_.saved()));
  }
  void steps_until(int last) {
    for (; steps_ < last; ++steps_) step();
  }
  SiteId product() { return session->site_named("convolution.input"); }
  SiteId slope() { return session->site_named("gelu.self"); }
  void expect_kept(const std::string& product, const std::string& slope) {
    EXPECT_EQ(codecs(), (Codecs{product, slope, "as is"}));
  }

  FakeTensor products_{8192};
  FakeTensor slopes_{8192};
  FakeTensor rest_{1 << 16};
  std::vector<Kept> kept_;
  int steps_ = 0;
};

TEST_F(GuardTest, looks_at_a_site_when_it_is_new_and_once_in_each_round) {
  std::vector<int> rounds;
  std::vector<int> looks;
  for (int i = 1; i <= 3000; ++i) {
    steps_until(i);
    if (session->look_round() == i) rounds.push_back(i);
    if (!session->wants_look(product())) continue;
    looks.push_back(i);
    EXPECT_EQ(session->note_look(product(), 0.1), Remedy::none);
  }
  EXPECT_EQ(rounds, (std::vector<int>{50, 100, 200, 400, 800, 1000, 2000, 3000}));
  rounds.insert(rounds.begin(), 1);
  EXPECT_EQ(looks, rounds);
}

TEST_F(GuardTest, gives_products_more_bits_in_later_rounds) {
  steps_until(1);
  expect_kept("rotated:2", "rotated:3");
  EXPECT_EQ(session->note_look(product(), 0.1), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(product(), 0.38), Remedy::none) << "as much as three times the error of 2 bits";
  EXPECT_EQ(session->note_look(product(), 1.0), Remedy::more_bits);
  step();
  expect_kept("rotated:4", "rotated:3");
  EXPECT_NE(session->report().sites[0].reason.find("noise"), std::string::npos);
  EXPECT_EQ(session->note_look(product(), 0.9), Remedy::none)
      << "products keep 4 bits while noise is less than gradient";
  EXPECT_EQ(session->note_look(product(), 1.1), Remedy::more_bits);
  step();
  expect_kept("affine:8:dithered", "rotated:3");
}

TEST_F(GuardTest, gives_as_many_bits_as_are_needed) {
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(product(), 0.396), Remedy::more_bits);
  step();
  expect_kept("rotated:4", "rotated:3");
  restart({});
  steps_ = 0;
  steps_until(1);
  EXPECT_EQ(session->note_look(slope(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(slope(), 0.95), Remedy::more_bits);
  step();
  expect_kept("rotated:2", "affine:8:dithered");
  EXPECT_EQ(session->note_look(slope(), 0.95), Remedy::exact) << "there are no more bits";
  step();
  expect_kept("rotated:2", "as is");
  const std::string state = session->save_state();
  restart({});
  session->load_state(state);
  step();
  expect_kept("rotated:2", "as is");
}

TEST_F(GuardTest, gives_new_products_more_bits_too) {
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.5), Remedy::more_bits) << "a few features may hold most of it";
  step();
  expect_kept("rotated:4", "rotated:3");
  EXPECT_FALSE(session->wants_look(product()));
}

TEST_F(GuardTest, takes_less_noise_of_what_is_always_rounded_alike) {
  const FakeTensor quotient(1 << 18);
  session->begin_step();
  keep("div", "other", quotient.saved());
  EXPECT_EQ(codecs(), Codecs{"cast:bf16"});
  const SiteId site = session->site_named("div.other");
  EXPECT_EQ(session->note_look(site, 0.05), Remedy::none);
  restart({});
  session->begin_step();
  keep("div", "other", quotient.saved());
  EXPECT_EQ(session->note_look(site, 0.2), Remedy::exact);
}

TEST_F(GuardTest, leaves_its_bits_beside_a_plan_of_average_bits) {
  restart({.bits = 1.5});
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 3.0), Remedy::more_bits);
  const SiteId slope_site = slope();
  EXPECT_TRUE(session->learn({.sites = {{product(), 1e-6}, {slope_site, 1.0}}}));
  step();
  EXPECT_EQ(codecs()[0], "rotated:4") << "which the plan would give 1 bit";
}

TEST_F(GuardTest, keeps_a_new_site_exactly_if_its_gradient_is_lost) {
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), kLost), Remedy::exact);
  EXPECT_EQ(session->note_look(slope(), 0.91), Remedy::exact);
  step();
  expect_kept("as is", "as is");
  EXPECT_FALSE(session->wants_look(product()));
}

TEST_F(GuardTest, says_nothing_of_a_gradient_that_is_zero_but_for_rounding) {
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(product(), 1e12), Remedy::none);
  step();
  expect_kept("rotated:2", "rotated:3");
}

TEST_F(GuardTest, spends_no_more_than_a_tenth_of_what_a_step_would_hold) {
  products_ = FakeTensor(6144);
  rest_ = FakeTensor(256);  // of 14,592 elements in all
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  EXPECT_EQ(session->note_look(slope(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(slope(), 0.95), Remedy::more_bits);
  EXPECT_EQ(session->note_look(product(), 1.0), Remedy::no_room);
  step();
  expect_kept("rotated:2", "affine:8:dithered");
}

TEST_F(GuardTest, leaves_what_a_rule_asks_for) {
  restart({.rules = {{"convolution.input", "rotated:1"}}});
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(product(), 3.0), Remedy::none);
  step();
  expect_kept("rotated:1", "rotated:3");
}

TEST_F(GuardTest, is_part_of_a_saved_state) {
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(product(), 1.0), Remedy::more_bits);
  const std::string state = session->save_state();
  restart({});
  session->load_state(state);
  EXPECT_EQ(session->save_state(), state);
  step();
  expect_kept("rotated:4", "rotated:3");
  EXPECT_FALSE(session->wants_look(product()));
}

TEST_F(GuardTest, leaves_later_rounds_to_plans) {
  for (const SessionOptions& options : {SessionOptions{.adapt = "layer"}, SessionOptions{.budget = "1MiB"}}) {
    restart(options);
    steps_ = 0;
    steps_until(3);
    EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
    steps_until(50);
    EXPECT_EQ(session->look_round(), 0);
    EXPECT_FALSE(session->wants_look(product()));
  }
}

TEST_F(GuardTest, looks_no_more_once_backward_has_begun) {
  steps_until(1);
  EXPECT_TRUE(session->wants_look(product()));
  values(kept_[0]);
  EXPECT_FALSE(session->wants_look(product()));
  step();
  EXPECT_TRUE(session->wants_look(product()));
}

TEST_F(GuardTest, counts_memory_that_is_shared_once) {
  const auto share = [&] {
    kept_.clear();
    session->begin_step();
    kept_.push_back(keep("mm", "self", products_.saved()));
    kept_.push_back(keep("addmm", "mat1", products_.saved()));
    kept_.push_back(keep("linear", "input", products_.saved()));
    kept_.push_back(keep("amax", "self", rest_.saved()));
  };
  rest_ = FakeTensor(4096);  // a tenth of all has room for 4 bits in place of 3 once, but not three times
  for (int i = 0; i < 50; ++i) share();
  for (const char* site : {"mm.self", "addmm.mat1", "linear.input"}) {
    const SiteId id = session->site_named(site);
    EXPECT_EQ(session->note_look(id, 0.0), Remedy::none);
  }
  share();
  for (int i = 51; i < 100; ++i) share();
  for (const char* site : {"mm.self", "addmm.mat1", "linear.input"}) {
    EXPECT_EQ(session->note_look(session->site_named(site), 0.35), Remedy::more_bits) << site;
  }
  share();
  EXPECT_EQ(codecs()[0], "rotated:4");
  EXPECT_EQ(session->report().sites[1].kind, SiteKind::shared);
}

TEST_F(GuardTest, gives_some_more_bits_where_all_would_be_too_many) {
  rest_ = FakeTensor(1 << 13);  // a tenth of all is 13,517 bytes; 8 bits in place of 3 would take 15,360 more
  slopes_ = FakeTensor(24576);
  products_ = FakeTensor(1024);
  steps_until(1);
  EXPECT_EQ(session->note_look(slope(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(slope(), 0.95), Remedy::more_bits);
  step();
  expect_kept("rotated:2", "rotated:4");
}

TEST_F(GuardTest, keeps_more_faithful_choices_of_the_policy) {
  const auto multiply = [&](bool in_loss) {
    kept_.clear();
    session->begin_step();
    SavedTensor saved = slopes_.saved();
    saved.facts.after_model = in_loss;
    kept_.push_back(keep("mul", "self", saved));
    kept_.push_back(keep("amax", "self", rest_.saved()));
  };
  for (int i = 0; i < 50; ++i) multiply(false);
  const SiteId site = session->site_named("mul.self");
  EXPECT_EQ(session->note_look(site, 0.0), Remedy::none);
  for (int i = 50; i < 100; ++i) multiply(false);
  EXPECT_EQ(session->note_look(site, 0.95), Remedy::more_bits);
  multiply(false);
  EXPECT_EQ(codecs()[0], "affine:8:dithered");
  multiply(true);
  EXPECT_EQ(codecs()[0], "cast:bf16");
}

}  // namespace
}  // namespace actzip
