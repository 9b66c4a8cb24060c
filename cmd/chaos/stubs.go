package main

func fileRows() []*row  { return nil }
func clockRows() []*row { return nil }
func floodRows() []*row { return nil }
