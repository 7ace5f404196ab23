package looptest_test

import "testing"

func checkInvariants(t *testing.T, s *scenario, got *expectation)      {}
func checkDivergent(t *testing.T, s *scenario, got, want *expectation) {}
func improve(want *expectation) bool                                   { return false }
