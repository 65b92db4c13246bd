// Matches lines with the rules of a kernel monitor as node-problem-detector does: Go's regexp, to the end of the line
// (pkg/systemlogmonitor/log_buffer.go, Match). Standard input: {"patterns": [...], "lines": [...]} as JSON. Standard
// output: for each line the places of the patterns that match it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var given struct{ Patterns, Lines []string }
	fail(json.NewDecoder(os.Stdin).Decode(&given))
	var rules []*regexp.Regexp
	for _, pattern := range given.Patterns {
		rule, err := regexp.Compile(pattern + `\z`)
		fail(err)
		rules = append(rules, rule)
	}
	found := make([][]int, len(given.Lines))
	for place, line := range given.Lines {
		found[place] = []int{}
		for number, rule := range rules {
			if rule.MatchString(line) {
				found[place] = append(found[place], number)
			}
		}
	}
	fail(json.NewEncoder(os.Stdout).Encode(found))
}
