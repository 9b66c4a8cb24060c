package main

func failoverRows() []*row { return nil }
func modelRows() []*row    { return nil }
func fileRows() []*row     { return nil }
func clockRows() []*row    { return nil }
func floodRows() []*row    { return nil }
