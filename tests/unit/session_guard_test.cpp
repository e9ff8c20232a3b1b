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
    if (session->begins_looks()) rounds.push_back(i);
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
  EXPECT_EQ(session->note_look(product(), 0.5), Remedy::none) << "noise of a new site is judged as for other sites";
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
  expect_kept("affine:8:nearest", "rotated:3");
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
  expect_kept("rotated:2", "affine:8:nearest");
  EXPECT_EQ(session->note_look(slope(), 0.95), Remedy::exact) << "there are no more bits";
  step();
  expect_kept("rotated:2", "as is");
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
  rest_ = FakeTensor(256);  // of 16,640 elements in all
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  EXPECT_EQ(session->note_look(slope(), 0.0), Remedy::none);
  steps_until(50);
  EXPECT_EQ(session->note_look(slope(), 0.95), Remedy::more_bits);
  EXPECT_EQ(session->note_look(product(), 1.0), Remedy::no_room);
  step();
  expect_kept("rotated:2", "affine:8:nearest");
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

TEST_F(GuardTest, gives_a_plan_the_bits_that_it_found) {
  restart({.bits = 2, .adapt = "layer"});
  steps_until(1);
  EXPECT_EQ(session->note_look(product(), 0.0), Remedy::none);
  steps_until(2);
  session->learn({.sites = {{product(), 1e-9}, {slope(), 1.0}}});
  step();
  expect_kept("rotated:1", "rotated:3");
  ++steps_;
  steps_until(50);
  EXPECT_EQ(session->note_look(product(), 2.0), Remedy::more_bits);
  step();
  EXPECT_EQ(codecs()[0], "rotated:4") << "at once";
  session->learn({.sites = {{product(), 1e-9}, {slope(), 1.0}}});
  step();
  EXPECT_EQ(codecs()[0], "rotated:4") << "in later plans, too";
}

}  // namespace
}  // namespace actzip
